/**
 * `make goldens`: records the hash of what llama-server renders of each conversation with each of the bundle's templates.
 * RA_LLAMA_SERVER: path of a llama-server that was built from the bundle's source (`make peers` builds one). RA_GOLDENS_TEXTS: a
 * folder to which the rendered texts are written, to inspect a difference.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { env, stderr } from 'node:process';
import { freePort } from '../support/free-port.js';
import { bundleCheckout, bundleCommit, testModel } from '../support/models.js';
import { sourceRoot } from '../support/source-root.js';
import { CONVERSATIONS, requestBody } from './conversations.js';
import { GOLDENS_FILE, outcomeOf, type Goldens, type Outcome } from './hashes.js';

/** A start with this small model takes some tenths of a second. */
const START_MS = 30_000;

const server = env['RA_LLAMA_SERVER'] ?? join(sourceRoot, 'bench/.cache/peers/build/bin/llama-server');
const texts = env['RA_GOLDENS_TEXTS'];

const folder = join(await bundleCheckout(), 'models/templates');
const names = (await readdir(folder)).filter((name) => name.endsWith('.jinja')).sort();
const templates: Record<string, Goldens['templates'][string]> = {};
for (const name of names) {
  stderr.write(`${name}\n`);
  const template = name.slice(0, -'.jinja'.length);
  templates[template] = await record(template, join(folder, name));
}
await mkdir(join(sourceRoot, 'test/goldens'), { recursive: true });
const lines = Object.entries(templates).map(
  ([name, outcomes]) => `    ${JSON.stringify(name)}: ${JSON.stringify(outcomes)}`,
);
const llama = JSON.stringify(await bundleCommit());
await writeFile(GOLDENS_FILE, `{\n  "llama": ${llama},\n  "templates": {\n${lines.join(',\n')}\n  }\n}\n`);

async function record(template: string, file: string): Promise<Goldens['templates'][string]> {
  const port = await freePort();
  const args = ['--model', await testModel(), '--jinja', '--chat-template-file', file, '--port', `${port}`];
  const child = spawn(server, [...args, '--ctx-size', '256', '--parallel', '1', '--no-warmup'], { stdio: 'ignore' });
  const gone = once(child, 'exit');
  try {
    const base = `http://127.0.0.1:${port}`;
    // It exits if it cannot parse the template. Then nothing is rendered.
    const up = await Promise.race([healthy(base), gone.then(() => false)]);
    const outcomes: Record<string, Outcome> = {};
    for (const [name, conversation] of Object.entries(CONVERSATIONS)) {
      const prompt = up ? await apply(base, requestBody(conversation)) : undefined;
      outcomes[name] = outcomeOf(prompt);
      if (texts !== undefined && prompt !== undefined) await writeFile(join(texts, `${template}.${name}.txt`), prompt);
    }
    return outcomes;
  } finally {
    child.kill('SIGKILL');
    await gone;
  }
}

async function apply(base: string, body: string): Promise<string | undefined> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${base}/apply-template`, { method: 'POST', headers, body });
  return response.ok ? ((await response.json()) as { prompt: string }).prompt : undefined;
}

async function healthy(base: string): Promise<true> {
  const until = Date.now() + START_MS;
  for (;;) {
    const ok = await fetch(`${base}/health`).then(
      (response) => response.ok,
      () => false,
    );
    if (ok) return true;
    if (Date.now() > until) throw new Error('llama-server did not become ready');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
