/** `ra-sidecar models reload`: sends the request to the running sidecar, over its operators' listener. */
import { resolve } from 'node:path';
import type { Config } from '../config/config.js';
import { askSidecar } from './ask-sidecar.js';
import { EXIT, parsed, UsageError, type Output } from './command.js';
import { COMMANDS } from './command-table.js';

interface Reloaded {
  readonly weight_version: string;
  readonly replicas: number;
  readonly file: string;
}

/** Resolves with the exit code once the reload has ended, which may take minutes. */
export async function reload(
  { operators }: Pick<Config, 'operators'>,
  args: readonly string[],
  { out, err: say }: Output,
): Promise<number> {
  const { values, operands } = parsed(COMMANDS.models.commands.reload, args);
  const [model = ''] = operands;
  if (operators.port === 0) throw new UsageError('models reload: operators.port has to be set');
  const file = values.file === undefined ? {} : { file: resolve(values.file) };
  // Without a time limit: loading may take long, and the sidecar bounds each load.
  const asked = await askSidecar<Reloaded>(operators, {
    method: 'POST',
    path: '/models/reload',
    body: JSON.stringify({ model, ...file }),
  });
  if (asked.kind === 'none' || asked.body.weight_version === undefined) {
    const why = asked.kind === 'none' ? asked.why : (asked.body.error?.message ?? 'no answer that this command knows');
    say(`ra-sidecar: ${model} was not reloaded: ${why}\n`);
    return EXIT.failed;
  }
  const answer = asked.body;
  if (values.json) out(`${JSON.stringify(answer, null, 2)}\n`);
  else {
    const { weight_version: version, replicas = 0 } = answer;
    const done = replicas === 0 ? 'all replicas had it' : `${replicas} replica${replicas === 1 ? '' : 's'} loaded it`;
    out(`${model} serves ${version} from ${answer.file ?? ''}: ${done}\n`);
  }
  if (values.file !== undefined) say('a restart of the sidecar loads the file that the configuration names\n');
  return EXIT.done;
}
