import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { makePromptParts } from '../../../../engine/prompt/prompt-parts.js';
import { loadVocabulary } from '../../../../engine/llama/vocabulary.js';
import { CONVERSATIONS, type GoldenClass } from '../../../goldens/conversations.js';
import { differentPairs, UNLISTED } from '../../../goldens/differences.js';
import { ourOutcome, ourRefusal, readGoldens, type Outcome } from '../../../goldens/hashes.js';
import { bundleCheckout, bundleCommit, testModel } from '../../../support/models.js';
import { bundleTemplate } from '../../../support/prompt-models.js';

/**
 * The least number of templates that render all conversations of a class as llama.cpp or as Jinja2 does. The others list no tools, or
 * Jinja2 throws.
 */
const AT_LEAST: Readonly<Partial<Record<GoldenClass, number>>> = { plain: 70, tools: 61, loop: 56, thought: 61 };

t.test('each template of the bundle renders as with llama-server', async (t) => {
  const { llama, templates } = await readGoldens();
  t.equal(llama, await bundleCommit(), 'the goldens are of this bundle; otherwise run `make goldens`');
  const files = await readdir(join(await bundleCheckout(), 'models/templates'));
  const names = files.filter((name) => name.endsWith('.jinja')).map((name) => name.slice(0, -'.jinja'.length));
  t.same(Object.keys(templates).sort(), names.sort());
  // The model that llama-server was started with, for its BOS and EOS.
  const vocabulary = await loadVocabulary(await testModel());
  t.teardown(() => vocabulary.dispose());

  const unequal: string[] = [];
  const refused: string[] = [];
  const unexplained: string[] = [];
  for (const [name, theirs] of Object.entries(templates)) {
    const made = makePromptParts(vocabulary, { chatTemplate: await bundleTemplate(name) });
    for (const [title, conversation] of Object.entries(CONVERSATIONS)) {
      const ours: Outcome = made.kind === 'ok' ? ourOutcome(made.parts, conversation) : 'none';
      if (ours === 'none' && theirs[title] !== 'none') refused.push(`${name} ${title}`);
      if (ours === 'none' && made.kind === 'ok' && ourRefusal(made.parts, conversation) === undefined)
        unexplained.push(`${name} ${title}`);
      if (ours !== theirs[title]) unequal.push(`${name} ${title}`);
    }
  }
  t.same(unexplained, [], 'a 422 names the construct that the template does not take');
  t.same(refused, [], 'nothing is answered 422 that llama-server renders');
  const withTools = Object.keys(CONVERSATIONS).filter((title) => CONVERSATIONS[title]?.tools);
  const listed = [...differentPairs(), ...UNLISTED.flatMap((name) => withTools.map((title) => `${name} ${title}`))];
  t.same(unequal.sort(), listed.sort());
  t.ok(Object.keys(CONVERSATIONS).length >= 40);

  const judged = differentPairs('sidecar');
  const unjudged = unequal.filter((pair) => !judged.includes(pair));
  for (const [kind, least] of Object.entries(AT_LEAST)) {
    const titles = Object.keys(CONVERSATIONS).filter((title) => CONVERSATIONS[title]?.class === kind);
    const equal = names.filter((name) => titles.every((title) => !unjudged.includes(`${name} ${title}`)));
    t.ok(equal.length >= least, `${kind}: ${equal.length} of ${names.length}, at least ${least}`);
  }
});
