/** What `doctor` and `models verify` find of a model's images, with a stand-in for its vision process. */
import t from 'tap';
import { imageChecks, imageFinding } from '../../../sidecar/commands/image-finding.js';
import { loadConfig, type ModelConfig } from '../../../sidecar/config/config.js';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { stubProjector, VISION_STUB, type VisionScript } from '../../support/vision-script.js';

function model(script?: VisionScript): ModelConfig {
  const vision = script && { vision: { projector: stubProjector(script) } };
  const models = JSON.stringify([{ id: 'seeing', kind: 'chat', file: 'm.gguf', ...vision }]);
  const loaded = loadConfig({ RA_MODELS: models });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  const [one] = loaded.config.models;
  if (!one) throw new Error('no model');
  return one;
}

const look = (script?: VisionScript): ReturnType<typeof imageFinding> =>
  imageFinding(model(script), 'm.gguf', systemClock, VISION_STUB);

t.test('the projector fits, and what confines its process', async (t) => {
  const found = await look({});
  t.match(found?.finding, { what: 'images', ok: true });
  t.match(
    found?.finding.says,
    /^the projector fits, takes [\d.]+ MiB of memory; system calls filtered, memory bounded$/,
  );
  t.ok((found?.bytes ?? 0) > 2 ** 20);
  const [check] = imageChecks('seeing', found ? [found.finding] : []);
  t.match(check, { what: 'images of seeing', level: 'ok' });
});

t.test('a process that is not confined is a warning', async (t) => {
  for (const confinement of [{ filtered: false }, { bounded: false }]) {
    const found = await look({ confinement });
    t.match(found?.finding, { ok: false, needed: false, says: /system calls not filtered|memory not bounded/ });
    t.match(imageChecks('seeing', found ? [found.finding] : []), [{ level: 'warn', advice: 'docs/vision.md' }]);
  }
  t.match((await look({ confinement: { ownUser: true } }))?.finding.says, /a user of its own/);
});

t.test('a projector of another model is refused', async (t) => {
  t.match(await look({ start: 'misfit' }), {
    finding: { ok: false, needed: true, says: /^the projector cannot be used: mismatch/ },
    bytes: 0,
  });
  t.match(await look({ start: 'exit' }), { finding: { ok: false, needed: true, says: 'its process ended: died' } });
});

t.test('a model without vision is not looked at', async (t) => {
  t.equal(await look(), undefined);
});
