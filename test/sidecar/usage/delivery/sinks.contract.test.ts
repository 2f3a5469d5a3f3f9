import t from 'tap';
import { sinkContract } from '../../../support/sink-contract.js';
import { httpPeer, natsPeer } from '../../../support/sink-peers.js';

sinkContract(t, 'HTTP', httpPeer);
sinkContract(t, 'NATS', natsPeer);
