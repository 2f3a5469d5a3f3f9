import { join } from 'node:path';
import t from 'tap';
import { externalCheck } from '../../../sidecar/commands/external-check.js';
import { loadConfig } from '../../../sidecar/config/config.js';

t.test('the files of this host for a model that is computed elsewhere', async (t) => {
  const dir = t.testdir({ 'words.gguf': '', key: 'secret\n', empty: '\n' });
  const check = async (model: object, engine: object = {}): Promise<object> => {
    const server = { kind: 'vllm', url: 'http://127.0.0.1:8000', ...engine };
    const models = [{ id: 'chat', kind: 'chat', file: join(dir, 'words.gguf'), engine: server, ...model }];
    const loaded = loadConfig({ RA_MODELS: JSON.stringify(models) });
    if (loaded.kind === 'invalid') throw new Error(loaded.line);
    const [only] = loaded.config.models;
    if (only === undefined) throw new Error('no model');
    return await externalCheck(only);
  };
  t.match(await check({}, { secretFile: join(dir, 'key') }), { level: 'ok', says: /at http:\/\/127.0.0.1:8000/ });
  t.match(await check({ file: join(dir, 'none.gguf') }), {
    level: 'fail',
    says: /none\.gguf cannot be read \(ENOENT\)/,
  });
  t.match(await check({ chatTemplate: join(dir, 'none.jinja') }), {
    level: 'fail',
    says: /chatTemplate cannot be read/,
  });
  t.match(await check({}, { secretFile: join(dir, 'none') }), {
    level: 'fail',
    says: /none cannot be read \(ENOENT\)/,
  });
  const empty = await check({}, { secretFile: join(dir, 'empty') });
  t.match(empty, { level: 'fail', says: /empty has no key in its first line/ });
});
