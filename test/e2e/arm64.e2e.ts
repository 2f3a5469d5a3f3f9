/**
 * What can be shown of arm64 on a host that is none: the engine, the prompt host and the commands in a Debian 13 root, run by
 * qemu-user. The HTTP library is left out: npm's registry may lack its binary for arm64, and `doctor` then says which.
 */
import t from 'tap';
import { prepareRoot } from './debian-root.js';
import { addLocked, nodeBinary } from './npm-packages.js';
import { run, type OtherNode } from './other-node.js';

const ARM64: OtherNode = { version: '24.21.0', root: 'arm64' };
/** They decode in many ways, hold replies to grammars, render prompts, and start processes; none listens. */
const FILES: readonly string[] = [
  'integration/engine/llama/batch-decoder.test.js',
  'integration/engine/grammar.test.js',
  'integration/engine/prompt/chat-prompt.test.js',
  'integration/sidecar/engine-client/replica.test.js',
];

addLocked('@node-llama-cpp/linux-arm64');
prepareRoot('arm64');
const binary = nodeBinary(ARM64.version, 'arm64');

t.test('doctor finds the backend and both embedded models, and says what the HTTP library lacks', async (t) => {
  const { output } = await run(ARM64, binary, ['node', 'dist/sidecar/cli.js', 'doctor']);
  t.match(output, /^ok +Node +24\.21\.0$/m);
  t.match(output, /^ok +backend +CPU .* NEON /m);
  t.match(output, /^ok +model ra-tiny-chat /m);
  t.match(output, /^ok +model ra-tiny-decide /m);
  t.match(output, /^(ok +HTTP library|fail +HTTP library .*@uwsjs\/linux-arm64-24)/m);
});

t.test('models verify loads the embedded model and decodes with it', async (t) => {
  const { code, output } = await run(ARM64, binary, [
    'node',
    'dist/sidecar/cli.js',
    'models',
    'verify',
    'engine/assets/seedling.gguf',
  ]);
  t.equal(code, 0, output);
  t.match(output, /it can be served as a chat model/);
});

for (const file of FILES)
  t.test(file, async (t) => {
    const { code, output } = await run(ARM64, binary, ['node', `dist/test/${file}`]);
    t.equal(code, 0, output);
  });
