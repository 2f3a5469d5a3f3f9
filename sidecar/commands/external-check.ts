/** The checks of `ra-sidecar doctor` for a model that external servers compute. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { remoteSetup } from '../app/compose-engine.js';
import { planOf } from '../app/compose-replicas.js';
import { templateOf } from '../app/model-template.js';
import type { ModelConfig } from '../config/config.js';
import { inspect, type Inspected, readServerKey } from '../engine-client/inspector.js';
import type { Check } from './check.js';
import type { Io } from './io.js';
import { withFile } from './model-files.js';

const ADVICE = 'start the server, or correct the engine settings of the model (docs/engines.md)';

/** One for each server, which is asked once what an engine process asks it at its start. */
export async function externalChecks(model: ModelConfig, io: Pick<Io, 'clock'>): Promise<Check[]> {
  const what = `model ${model.id}`;
  const problem = await fileProblem(model);
  if (problem !== undefined) return [{ what, level: 'fail', says: problem }];
  const { file, kind, seats, contextPerSeat } = withFile(model);
  const plan = await planOf(model, file);
  if (plan.kind === 'unfit') return [{ what, level: 'fail', says: plan.why }];
  const setup = { file, kind, seats, contextPerSeat, template: templateOf(model) };
  const checks = plan.replicas.map(async ({ server }) => {
    const remote = server && remoteSetup(model, server);
    if (remote === undefined) return [];
    return serverChecks(model, remote.socket ?? remote.url, await inspect('server', { model: setup, remote }, io));
  });
  return (await Promise.all(checks)).flat();
}

/** `where`: the server's address. */
function serverChecks({ id, load, engine }: ModelConfig, where: string, asked: Inspected<'server'>): Check[] {
  const what = `model ${id}`;
  const problem = asked.kind === 'failed' ? asked.reason : asked.answer.kind === 'unusable' && asked.answer.problem;
  if (problem !== false) return [{ what, level: load === 'lazy' ? 'warn' : 'fail', says: problem, advice: ADVICE }];
  const warnings = asked.kind === 'answer' && asked.answer.kind === 'serves' ? asked.answer.warnings : [];
  return [
    { what, level: 'ok', says: `computed by ${engine.kind} at ${where}, whose prompts are equal to the sidecar’s` },
    ...warnings.map((says): Check => ({ what, level: 'warn', says })),
  ];
}

async function fileProblem(model: ModelConfig): Promise<string | undefined> {
  const { file } = withFile(model);
  const { secretFile } = model.engine;
  try {
    templateOf(model);
    await access(file, constants.R_OK);
    if (secretFile === undefined || (await readServerKey(secretFile)) !== undefined) return undefined;
    return `${secretFile} has no key in its first line`;
  } catch (error) {
    const { code, path } = error as NodeJS.ErrnoException;
    return path === undefined ? (error as Error).message : `${path} cannot be read (${code ?? 'unknown'})`;
  }
}
