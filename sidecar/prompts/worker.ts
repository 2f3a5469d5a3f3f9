/** One worker of the prompt host's pool. Its models are loaded before it takes its first task. */
import { workerData } from 'node:worker_threads';
import type { HostSetup, ModelReport, WorkerTask } from './messages.js';
import { loadModels } from './models.js';
import { check, tokenize } from './prepare.js';
import type { Checked, Tokenized } from './prompt-host.js';

const setup = workerData as HostSetup;
const loaded = await loadModels(setup.models);
const models = new Map(loaded.map((model) => [model.model.id, model]));

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
