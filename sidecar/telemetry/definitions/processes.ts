/** The engines and the prompt host, which are separate processes. */
import { PREFIX, type CounterDefinition, type GaugeDefinition } from '../instruments.js';

export const ENGINE_STATE: GaugeDefinition<'model' | 'state'> = {
  name: `${PREFIX}engine_state`,
  type: 'gauge',
  unit: '0 or 1',
  labels: ['model', 'state'],
  help: 'State of the engine, of several replicas that of the one that comes closest to serving: 1 for the current state, 0 for the others.',
  advice: '`lost`: its model cannot be served; the log and `/readyz` on the operators’ listener have the reason.',
};

export const REPLICA_STATE: GaugeDefinition<'model' | 'replica' | 'state'> = {
  name: `${PREFIX}replica_state`,
  type: 'gauge',
  unit: '0 or 1',
  labels: ['model', 'replica', 'state'],
  help: 'State of each engine process of a model: 1 for the current state, 0 for the others.',
  advice:
    '`lost`, or `cold` for long, while others are `ready`: `/readyz` on the operators’ listener has the reason; the model is served with fewer seats.',
};

export const REPLICA_SEATS: GaugeDefinition<'model' | 'replica'> = {
  name: `${PREFIX}replica_seats`,
  type: 'gauge',
  unit: 'seats',
  labels: ['model', 'replica'],
  help: 'Seats that each engine process of a model offers; 0 while it is not ready.',
  advice: 'Their sum is what `ra_sidecar_seats` has while one of them is ready.',
};

export const REPLICA_BUSY: GaugeDefinition<'model' | 'replica'> = {
  name: `${PREFIX}replica_seats_busy`,
  type: 'gauge',
  unit: 'seats',
  labels: ['model', 'replica'],
  help: 'Seats of each engine process of a model that requests hold.',
  advice: 'Uneven for long: conversations stay where their past turns are, or requests need the longer seats of one.',
};

export const REPLICA_TOKEN_TIME: GaugeDefinition<'model' | 'replica'> = {
  name: `${PREFIX}replica_token_time_ratio`,
  type: 'gauge',
  unit: 'ratio',
  labels: ['model', 'replica'],
  help: 'How many times as long a token of a reply takes on each engine process of a model as on the average one with as many busy seats; absent until it is known.',
  advice:
    'One far above the others: a slower device, or one that other work uses too. Requests go to the others first (docs/admission.md).',
};

export const REPLICA_RESTARTS: CounterDefinition<'model' | 'replica'> = {
  name: `${PREFIX}replica_restarts_total`,
  type: 'counter',
  unit: 'restarts',
  labels: ['model', 'replica'],
  help: 'Restarts of each engine process of a model, counted as in `ra_sidecar_engine_restarts_total`.',
  advice:
    'One far above the others: its device, or its cores. The log line `engine lost` has its `replica` and the reason.',
};

export const ENGINE_RESTARTS: CounterDefinition<'model'> = {
  name: `${PREFIX}engine_restarts_total`,
  type: 'counter',
  unit: 'restarts',
  labels: ['model'],
  help: 'Engine processes that ended and are started again, at once or when a request needs them: failed loads too.',
  advice: 'The log line `engine lost` has the reason: out of memory, a hang, a crash of llama.cpp.',
};

export const UNCONFIRMED_CANCELS: CounterDefinition<'model'> = {
  name: `${PREFIX}engine_unconfirmed_cancels_total`,
  type: 'counter',
  unit: 'replies',
  labels: ['model'],
  help: 'Cancelled replies whose end an external server did not confirm within `models[].engine.cancelWaitMs`; their seats were used again nevertheless.',
  advice:
    'More than a few: the server continues to compute for callers who disconnected, or has other clients than this sidecar (docs/engines.md).',
};

export const KV_TOKENS: GaugeDefinition<'model' | 'use'> = {
  name: `${PREFIX}kv_tokens`,
  type: 'gauge',
  unit: 'tokens',
  labels: ['model', 'use'],
  help: 'Tokens in the KV memory of the engine’s ready replicas, as of their last heartbeats.',
  advice:
    '`running` near the capacity: conversations are as long as their seats allow. `kept` may fill the rest: it is kept only for reuse.',
};

export const KV_CAPACITY: GaugeDefinition<'model'> = {
  name: `${PREFIX}kv_capacity_tokens`,
  type: 'gauge',
  unit: 'tokens',
  labels: ['model'],
  help: 'Tokens that the KV memory of the engine’s ready replicas can hold: seats times the context of each; 0 while none is ready.',
  advice: 'It is the configuration: `models[].seats` and `models[].contextPerSeat`.',
};

export const PROMPT_RESTARTS: CounterDefinition = {
  name: `${PREFIX}prompt_host_restarts_total`,
  type: 'counter',
  unit: 'restarts',
  labels: [],
  help: 'Restarts of prompt hosts.',
  advice: 'The log line `prompt host restarts` has the reason; requests whose prompt was lost got `internal`.',
};

export const PROCESS_METRICS = [
  ENGINE_STATE,
  REPLICA_STATE,
  REPLICA_SEATS,
  REPLICA_BUSY,
  REPLICA_TOKEN_TIME,
  REPLICA_RESTARTS,
  ENGINE_RESTARTS,
  UNCONFIRMED_CANCELS,
  KV_TOKENS,
  KV_CAPACITY,
  PROMPT_RESTARTS,
] as const;
