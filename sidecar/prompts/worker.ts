/** What works the prompt host's items off, in a thread of its pool or in its own. Its models are loaded before the first. */
import { getEnvironmentData } from 'node:worker_threads';
import type { HostSetup, ModelReport, WorkerTask } from './messages.js';
import { loadModels } from './models.js';
import { check, tokenize } from './prepare.js';
import type { Checked, Tokenized } from './prompt-host.js';

const setup = getEnvironmentData('setup') as HostSetup;
const loaded = await loadModels(setup.models);
const models = new Map(loaded.map((model) => [model.model.id, model]));

// The first prompt takes several times what the second one takes, and this one has no caller who waits for it.
for (const { kind, model } of loaded) {
  if (kind === 'chat') greet(model.id);
}

function greet(model: string): void {
  const hello = { model, messages: [{ role: 'user', content: 'Hello' }] };
  try {
    tokenize(models, 'chat', Buffer.from(JSON.stringify(hello)));
  } catch {
    // Its callers are told; those of other models have no part in it.
  }
}

export default function run(task: WorkerTask): readonly ModelReport[] | Checked | Tokenized {
  switch (task.kind) {
    case 'report':
      return loaded.map(({ report }) => report);
    case 'check':
      return check(task.route, task.bytes);
    case 'tokenize':
      return tokenize(models, task.route, task.bytes);
  }
}
