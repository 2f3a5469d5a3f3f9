/**
 * A stand-in for a vision process: speaks engine/protocol/vision-messages.ts without the addon. The name of its projector's
 * file is a {@link VisionScript} as JSON. An image has a token for each 28 x 28 pixels, between two tokens of text, and its
 * width says what comes of it ({@link STUB_WIDTH}).
 */
import { basename } from 'node:path';
import { Link } from '../../engine/protocol/link.js';
import { ENGINE_EXIT } from '../../engine/protocol/messages.js';
import {
  VISION_VERSION as v,
  type EncodeTask,
  type FromVision,
  type Size,
  type ToVision,
  type VisionSetup,
} from '../../engine/protocol/vision-messages.js';
import { STUB_WIDTH, stubImageTokens, type VisionScript } from './vision-script.js';

const MISFIT = 'the projector cannot be used: mismatch between text model';

const SAFE = { filtered: true, bounded: true, ownUser: false } as const;

function send(message: FromVision | Record<string, unknown>): void {
  link.send(message);
}

function start(setup: VisionSetup): void {
  const script = JSON.parse(basename(setup.projector)) as VisionScript;
  if (script.deaf !== true) setInterval(() => send({ v, kind: 'heartbeat' }), setup.heartbeatMs);
  switch (script.start ?? 'ready') {
    case 'silent':
      setInterval(() => undefined, 1000);
      sayAll(script);
      return;
      return;
    case 'misfit':
      send({ v, kind: 'unable', reason: MISFIT, mayMend: false });
      return;
    case 'exit':
      process.exit(3);
      break;
    case 'wrong-version':
      send({ v: v + 1, kind: 'heartbeat' });
      return;
    case 'ready':
  }
  const confinement = { ...SAFE, ...script.confinement };
  send({ v, kind: 'ready', facts: { projectorVersion: 'stub', whole: false, confinement } });
  sayAll(script);
}

function sayAll({ says = [] }: VisionScript): void {
  for (const message of says) send({ v, ...message });
}

const held: (() => void)[] = [];

function encoded(id: number, size: Size): void {
  send({ v, kind: 'encoded', id, embeddings: [new Float32Array(stubImageTokens(size))] });
}

function encode(id: number, { size }: EncodeTask): void {
  switch (size.width) {
    case STUB_WIDTH.dies:
      process.exit(3);
      break;
    case STUB_WIDTH.undecodable:
      send({ v, kind: 'refused', id, why: 'undecodable' });
      return;
    case STUB_WIDTH.held:
      held.push(() => encoded(id, size));
      return;
    default:
      encoded(id, size);
  }
}

const link = Link.toParent({ message: (raw) => obey(raw as ToVision), closed: () => process.exit(0) });

function obey(message: ToVision): void {
  switch (message.kind) {
    case 'start':
      start(message.setup);
      break;
    case 'layout': {
      for (const answer of held.splice(0)) answer();
      const count = stubImageTokens(message.size);
      const text = (token: number) => ({ kind: 'tokens', tokens: Uint32Array.of(token) }) as const;
      const parts = [text(7), { kind: 'embeddings', count, positions: count, columns: 0 } as const, text(8)];
      send({ v, kind: 'layout', id: message.id, parts });
      break;
    }
    case 'encode':
      encode(message.id, message.task);
      break;
    case 'forget':
      break;
    default:
      process.exit(ENGINE_EXIT.protocol);
  }
}
