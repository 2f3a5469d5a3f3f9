import t from 'tap';
import { LoadFailure } from '../../../engine/llama/load-failure.js';
import { LlamaLog } from '../../../engine/llama/llama-log.js';
import { LlamaLogLevel } from '../../../engine/llama/package.js';

t.test('the first error, without its prefix and the message that loading failed', async (t) => {
  const log = new LlamaLog();
  t.equal(await log.firstError(), undefined);
  log.logger(LlamaLogLevel.warn, 'only a warning');
  log.logger(LlamaLogLevel.error, "llama_model_load: error loading model: missing tensor 'a'\n");
  log.logger(LlamaLogLevel.error, 'llama_model_load_from_file_impl: failed to load model\n');
  t.equal(await log.firstError(), "missing tensor 'a'");
});

t.test('why something failed: llama.cpp’s message, or the error’s', async (t) => {
  const log = new LlamaLog();
  const error = new Error('Failed to load');
  t.equal(await log.why(error), 'Failed to load');
  t.match(await log.failure(error), { message: 'llama.cpp cannot load it: Failed to load', mayMend: false });
  log.logger(LlamaLogLevel.error, 'ggml_vulkan: failed to allocate pinned memory\n');
  t.equal(await log.why(error), 'failed to allocate pinned memory');
  t.match(await log.failure(error), { message: /^llama\.cpp cannot load it: failed to allocate/, mayMend: true });
  const own = new LoadFailure('the file holds a vocabulary and no weights');
  t.equal(await log.failure(own), own);
});

t.test('what came before the load began is not its reason', async (t) => {
  const log = new LlamaLog();
  log.logger(LlamaLogLevel.error, 'ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n');
  log.begin();
  t.equal(await log.why(new Error('Failed to load')), 'Failed to load');
  log.logger(LlamaLogLevel.error, "llama_model_load: error loading model: missing tensor 'a'\n");
  t.equal(await log.why(new Error('Failed to load')), "missing tensor 'a'");
});

t.test('a line that only says that it failed gives way to one with details', async (t) => {
  const log = new LlamaLog();
  log.begin();
  log.logger(LlamaLogLevel.error, 'llama_model_load_from_file_impl: failed to load model\n');
  t.equal(await log.firstError(), 'failed to load model');
  log.logger(LlamaLogLevel.error, "llama_model_load: error loading model: missing tensor 'a'\n");
  log.logger(LlamaLogLevel.error, 'another\n');
  t.equal(await log.firstError(), "missing tensor 'a'");
});

t.test('one line, and a short one', async (t) => {
  const log = new LlamaLog();
  log.logger(LlamaLogLevel.error, `check: wrong   shape;\n\texpected ${'9'.repeat(1000)}`);
  const line = await log.firstError();
  t.match(line, /^wrong shape; expected 9+$/);
  t.equal(line?.length, 120);
});

t.test('a line after the failure counts, one after close does not', async (t) => {
  const log = new LlamaLog();
  const waiting = log.firstError();
  setImmediate(() => log.logger(LlamaLogLevel.error, 'late'));
  t.equal(await waiting, 'late');
  const closed = new LlamaLog();
  closed.close();
  closed.logger(LlamaLogLevel.error, 'a prompt');
  t.equal(await closed.firstError(), undefined);
});
