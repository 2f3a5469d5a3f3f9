/** The two `curl` commands that a start with the embedded model prints. */
import { execFileSync } from 'node:child_process';
import type { Readable } from 'node:stream';

/**
 * Reads a starting sidecar’s output until both are there, runs them in a shell, and returns their outputs: of a streamed chat and of a
 * decision. Throws if the output ends before, if they are not two, or if one fails.
 */
export async function printedCommands(output: Readable): Promise<[chat: string, decision: string]> {
  output.setEncoding('utf8');
  let printed = '';
  const complete = new Promise<void>((resolve, reject) => {
    output.on('data', (text: string) => {
      printed += text;
      if (/^curl .*"questions".*\n/m.test(printed)) resolve();
    });
    output.once('end', () => reject(new Error(`it ended without two commands: ${printed}`)));
  });
  await complete;
  const [chat, decision, ...more] = printed.split('\n').filter((line) => line.startsWith('curl '));
  if (chat === undefined || decision === undefined || more.length > 0) throw new Error(`not two commands: ${printed}`);
  const run = (line: string): string => execFileSync('sh', ['-c', line], { encoding: 'utf8', stdio: 'pipe' });
  return [run(chat), run(decision)];
}
