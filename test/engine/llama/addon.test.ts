import t from 'tap';
import { LoadFailure } from '../../../engine/llama/load-failure.js';
import { checkServed, engineAddon, internals, keepThreads } from '../../../engine/llama/addon.js';
import { KNOWN_VERSION } from '../../../engine/llama/addon-file.js';
import { cpuLlama } from '../../support/llama.js';
import { testModel } from '../../support/models.js';

t.test(
  'another version of node-llama-cpp, or another system, ends the start with one line that says what to do',
  (t) => {
    const refused = (...given: Parameters<typeof checkServed>): string => {
      try {
        checkServed(...given);
        return '';
      } catch (error) {
        if (!(error instanceof LoadFailure)) throw error;
        return error.message;
      }
    };
    t.equal(refused(), '', 'the installed one is served here');
    t.match(
      refused('3.0.0'),
      new RegExp(`^node-llama-cpp 3\\.0\\.0 is installed, .* ${KNOWN_VERSION} alone: run npm ci$`),
    );
    t.match(
      refused(KNOWN_VERSION, { platform: 'darwin', arch: 'arm64' }),
      /^there is no engine for darwin arm64: .*Linux/,
    );
    for (const arch of ['x64', 'arm64'] as const) t.equal(refused(KNOWN_VERSION, { platform: 'linux', arch }), '');
    t.end();
  },
);

t.test('the thread of all decodes ends with the process, and the exit listener is added once', async (t) => {
  const llama = await cpuLlama(1);
  const model = await llama.loadModel({ modelPath: await testModel() });
  const context = await model.createContext({ sequences: 1, contextSize: 64 });
  t.teardown(() => llama.dispose());
  keepThreads(context, 1);
  keepThreads(context, 1);
  const { raLeave } = engineAddon();
  t.equal(process.listeners('exit').filter((listener) => listener === raLeave).length, 1);
  t.throws(() => internals({ model } as unknown as typeof context), /is not as version .* run npm ci/);
});
