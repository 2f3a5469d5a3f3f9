/** The engines and the prompt host: processes of their own. */
import { PREFIX, type CounterDefinition, type GaugeDefinition } from '../instruments.js';

export const ENGINE_STATE: GaugeDefinition<'model' | 'state'> = {
  name: `${PREFIX}engine_state`,
  type: 'gauge',
  unit: '0 or 1',
  labels: ['model', 'state'],
  help: 'What the engine is: 1 for one state, 0 for the others.',
  advice: '`lost`: its model cannot be served; the log and `/readyz` on the operators’ listener say why.',
};

export const ENGINE_RESTARTS: CounterDefinition<'model'> = {
  name: `${PREFIX}engine_restarts_total`,
  type: 'counter',
  unit: 'restarts',
  labels: ['model'],
  help: 'Engine processes started again.',
  advice: 'The log line `engine lost` has the reason: memory, a hang, a crash of llama.cpp.',
};

export const KV_TOKENS: GaugeDefinition<'model' | 'use'> = {
  name: `${PREFIX}kv_tokens`,
  type: 'gauge',
  unit: 'tokens',
  labels: ['model', 'use'],
  help: 'Tokens that the engine’s sequences hold in its KV memory, by the engine’s last heartbeat.',
  advice:
    '`running` near the capacity: conversations are as long as their seats allow. `kept` may fill all the rest: it is only there to be reused.',
};

export const KV_CAPACITY: GaugeDefinition<'model'> = {
  name: `${PREFIX}kv_capacity_tokens`,
  type: 'gauge',
  unit: 'tokens',
  labels: ['model'],
  help: 'Tokens that the engine’s KV memory can hold: seats times the context of each; 0 before it was loaded once.',
  advice: 'It is the configuration: `models[].seats` and `models[].contextPerSeat`.',
};

export const PROMPT_RESTARTS: CounterDefinition = {
  name: `${PREFIX}prompt_host_restarts_total`,
  type: 'counter',
  unit: 'restarts',
  labels: [],
  help: 'Prompt hosts started again.',
  advice:
    'The log line `prompt host restarts` has the reason; requests whose prompt was lost were answered `internal`.',
};

export const PROCESS_METRICS = [ENGINE_STATE, ENGINE_RESTARTS, KV_TOKENS, KV_CAPACITY, PROMPT_RESTARTS] as const;
