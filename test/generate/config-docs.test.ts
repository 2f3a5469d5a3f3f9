import t from 'tap';
import { type SettingSchema, settings } from '../../sidecar/config/setting.js';
import { configSchema } from '../../sidecar/config/schema.js';

t.test('every setting has a description, a default and bounds', async (t) => {
  const all = [...settings(configSchema), ...settings(configSchema.properties.models.items)];
  t.ok(all.length > 30);
  for (const { path, schema } of all) {
    const { description, type, minimum, maximum } = schema;
    t.match(description, /^[A-Z`].*\.$/, `${path} is described`);
    if (type === 'integer') t.ok(minimum !== undefined && maximum !== undefined, `${path} has bounds`);
    if (!['id', 'kind', 'file'].includes(path)) t.ok(hasDefault(schema), `${path} has a default`);
  }
});

t.test('variables are distinct and follow the naming rule', async (t) => {
  const names = settings(configSchema).map(({ variable }) => variable);
  t.equal(new Set(names).size, names.length);
  t.ok(names.includes('RA_ENGINE_BACKOFF_MIN_MS'));
  t.ok(names.includes('RA_MODELS'));
  for (const name of names) t.match(name, /^RA(_[A-Z]+)+$/);
});

function hasDefault(schema: SettingSchema): boolean {
  return schema.default !== undefined || schema.defaultText !== undefined;
}
