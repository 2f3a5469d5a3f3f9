/** The table of test/goldens/README.md with what each level of effort gives each template of the bundle. */
import { EFFORTS, type Effort } from '../../engine/prompt/effort.js';
import { makeTemplate, type ChatTemplate } from '../../engine/prompt/template.js';
import { thoughtsOf } from '../../engine/prompt/thought-format.js';
import { bundleTemplates } from '../support/bundle-formats.js';
import { bundleTemplate } from '../support/prompt-models.js';
import { row } from './markdown.js';

const [BEGIN, END] = ['<!-- efforts: begin -->', '<!-- efforts: end -->'];

/** The page with the table between its marks. Renders each template of the bundle. */
export async function withEfforts(page: string): Promise<string> {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (from < 0 || to < from) throw new Error('the page has no place for the efforts');
  return `${page.slice(0, from)}${BEGIN}\n\n${await efforts()}\n\n${page.slice(to)}`;
}

async function efforts(): Promise<string> {
  /** Names of templates by what their levels give. */
  const same = new Map<string, string[]>();
  for (const name of [...(await bundleTemplates())].sort()) {
    const source = await bundleTemplate(name);
    const made = makeTemplate(source, { bos: '<s>', eos: '</s>' });
    if (made.kind === 'bad') continue;
    const cells = effortCells(source, made.template).join(' | ');
    same.set(cells, [...(same.get(cells) ?? []), name]);
  }
  const none = same.get(NO_EFFECT) ?? [];
  const switched = same.get(ON_OFF) ?? [];
  same.delete(NO_EFFECT);
  same.delete(ON_OFF);
  return [
    `\`none\` turns thought off and each other level turns it on with ${switched.length} templates: ${switched.join(', ')}. Levels have no effect with the ${none.length} of the bundle that are not named here. The others:`,
    '',
    row('template', ...EFFORTS.map((effort) => `\`${effort}\``)),
    row('---', ...EFFORTS.map(() => '---')),
    ...[...same].map(([cells, names]) => `| ${names.join(', ')} | ${cells} |`),
  ].join('\n');
}

const NO_EFFECT = EFFORTS.map(() => '').join(' | ');
const ON_OFF = EFFORTS.map((effort) => (effort === 'none' ? 'off' : 'on')).join(' | ');

/** For each level: `off` where no thought is asked for, else the template's own value, or `on`. Empty: levels have no effect. */
function effortCells(source: string, template: ChatTemplate): readonly string[] {
  const prompts = EFFORTS.map((effort) => {
    const conversation = { messages: [{ role: 'user', content: 'Hello' }] };
    const rendered = template.render(conversation, { addGenerationPrompt: true, reasoningEffort: effort });
    return rendered.kind === 'text' ? rendered.text : '';
  });
  const [none = ''] = prompts;
  if (new Set(prompts).size === 1) return EFFORTS.map(() => '');
  const offs = ownValue(template, 'none') === undefined || thoughtsOf(source, [])?.skipped(none) === true;
  const alike = new Set(prompts.filter((prompt) => !offs || prompt !== none)).size === 1;
  return EFFORTS.map((effort, i) => {
    if (offs && prompts[i] === none) return 'off';
    const value = alike ? undefined : ownValue(template, effort);
    return value === undefined ? 'on' : `\`${value}\``;
  });
}

/** What is not a switch. */
function ownValue(template: ChatTemplate, effort: Effort): string | number | undefined {
  const values = Object.values(template.efforts[effort]);
  return values.find((value): value is string | number => typeof value !== 'boolean');
}
