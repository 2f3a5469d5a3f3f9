/** Images on an installation in which nothing was compiled: the vision process and its sandbox are the package's own addon. */
import t from 'tap';
import { png } from '../support/images.js';
import { imagePart, see, seeingModel, seeingSidecar, textPart } from '../support/vision.js';

t.test('an image is decoded, encoded and read by its model, in a confined process', async (t) => {
  const sidecar = await seeingSidecar(t, await seeingModel('mlp'));
  const confined = sidecar.lines.filter(({ event }) => event === 'vision is not confined');
  t.same(confined, [], 'system calls are filtered, memory is bounded');
  const question = textPart('What is it?');
  const alone = await see(sidecar, [{ role: 'user', content: [question] }]);
  const dark = await see(sidecar, [{ role: 'user', content: [imagePart(png(64, 64)), question] }]);
  t.same([alone.status, dark.status], [200, 200]);
  t.ok(dark.promptTokens > alone.promptTokens + 1, `${dark.promptTokens} prompt tokens, ${alone.promptTokens} without`);
  t.ok(dark.text.length > 0);
});
