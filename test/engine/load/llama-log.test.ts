import { LlamaLogLevel } from 'node-llama-cpp';
import t from 'tap';
import { LoadFailure } from '../../../engine/load/load-failure.js';
import { LlamaLog } from '../../../engine/load/llama-log.js';

t.test('the first error, without who says it and that loading failed', async (t) => {
  const log = new LlamaLog();
  t.equal(await log.firstError(), undefined);
  log.logger(LlamaLogLevel.warn, 'only a warning');
  log.logger(LlamaLogLevel.error, "llama_model_load: error loading model: missing tensor 'a'\n");
  log.logger(LlamaLogLevel.error, 'llama_model_load_from_file_impl: failed to load model\n');
  t.equal(await log.firstError(), "missing tensor 'a'");
});

t.test('a failure says what llama.cpp said, and what it could not do', async (t) => {
  const log = new LlamaLog();
  const silent = await log.failure('load', new Error('Failed to load'));
  t.match(silent, { message: 'llama.cpp cannot load it: Failed to load', mayMend: false });
  log.logger(LlamaLogLevel.error, 'ggml_vulkan: failed to allocate pinned memory\n');
  const spoken = await log.failure('decode with', new Error('a first reply failed: a decode failed'));
  t.match(spoken, { message: 'llama.cpp cannot decode with it: failed to allocate pinned memory', mayMend: true });
  const own = new LoadFailure('the file holds a vocabulary and no weights');
  t.equal(await log.failure('load', own), own);
});

t.test('one line, and a short one', async (t) => {
  const log = new LlamaLog();
  log.logger(LlamaLogLevel.error, `check: wrong   shape;\n\texpected ${'9'.repeat(1000)}`);
  const line = await log.firstError();
  t.match(line, /^wrong shape; expected 9+$/);
  t.equal(line?.length, 120);
});

t.test('a line that comes after the failure counts, one after close does not', async (t) => {
  const log = new LlamaLog();
  const waiting = log.firstError();
  setImmediate(() => log.logger(LlamaLogLevel.error, 'late'));
  t.equal(await waiting, 'late');
  const closed = new LlamaLog();
  closed.close();
  closed.logger(LlamaLogLevel.error, 'a prompt');
  t.equal(await closed.firstError(), undefined);
});
