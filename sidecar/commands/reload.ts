/** `ra-sidecar models reload`: sends the request to the running sidecar, over its operators' listener. */
import { request } from 'node:http';
import { resolve } from 'node:path';
import type { Config } from '../config/config.js';
import { readFirstSecret } from '../lib/secret-file.js';
import { EXIT, parsed, UsageError, type Output } from './command.js';
import { COMMANDS } from './command-table.js';

/** Longer than any answer. */
const MAX_ANSWER = 64 * 1024;

interface Answer {
  readonly weight_version?: string;
  readonly replicas?: number;
  readonly file?: string;
  readonly error?: { readonly message?: string };
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
  const answer = await ask(operators, JSON.stringify({ model, ...file }));
  if (typeof answer === 'string' || answer.weight_version === undefined) {
    const why = typeof answer === 'string' ? answer : (answer.error?.message ?? 'no answer that this command knows');
    say(`ra-sidecar: ${model} was not reloaded: ${why}\n`);
    return EXIT.failed;
  }
  if (values.json) out(`${JSON.stringify(answer, null, 2)}\n`);
  else {
    const { weight_version: version, replicas = 0 } = answer;
    const done = replicas === 0 ? 'all replicas had it' : `${replicas} replica${replicas === 1 ? '' : 's'} loaded it`;
    out(`${model} serves ${version} from ${answer.file ?? ''}: ${done}\n`);
  }
  if (values.file !== undefined) say('a restart of the sidecar loads the file that the configuration names\n');
  return EXIT.done;
}

/** The answer, or why there is none. Without a time limit: loading may take long, and the sidecar bounds each load. */
async function ask({ host, port, secretFile }: Config['operators'], body: string): Promise<Answer | string> {
  const key = secretFile === undefined ? undefined : await readFirstSecret(secretFile);
  const headers = {
    'content-type': 'application/json',
    ...(key !== undefined && { authorization: `Bearer ${key}` }),
  };
  const to = { host: REACHABLE[host] ?? host, port, path: '/models/reload', method: 'POST', headers };
  return await new Promise((settle) => {
    const asked = request(to, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        if (text.length > MAX_ANSWER) asked.destroy();
      });
      response.once('end', () => settle(parse(text)));
      // After an end it does nothing.
      response.once('close', () => settle('the answer was cut off'));
    });
    asked.once('error', ({ code }: NodeJS.ErrnoException) => {
      settle(`no sidecar answers at ${to.host}:${port} (${code ?? 'closed'})`);
    });
    asked.end(body);
  });
}

/** Addresses on which one can listen but to which one cannot connect. */
const REACHABLE: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

function parse(text: string): Answer | string {
  try {
    return JSON.parse(text) as Answer;
  } catch {
    return 'the answer is no JSON: is that the operators’ listener of a sidecar?';
  }
}
