/** The list of test/goldens/README.md with the form in which each template of the bundle is given a history. */
import type { ChatTemplate } from '../../engine/prompt/template.js';

const [BEGIN, END] = ['<!-- histories: begin -->', '<!-- histories: end -->'];

const COLUMNS = [
  'later system message',
  'one role twice',
  'assistant first',
  'assistant last',
  'calls',
  'words beside calls',
  'ids',
  'thoughts',
] as const;

/** The page with the list of these templates, by name, between its marks. */
export function withHistories(page: string, templates: ReadonlyMap<string, ChatTemplate>): string {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (from < 0 || to < from) throw new Error('the page has no place for the forms of histories');
  /** Names of templates by their forms. */
  const same = new Map<string, string[]>();
  for (const [name, template] of [...templates].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const forms = cellsOf(template).flatMap((cell, i) => (cell === '' ? [] : [`${COLUMNS[i] ?? ''} ${cell}`]));
    const cells = forms.length === 0 ? 'all as the caller sends it' : forms.join('; ');
    same.set(cells, [...(same.get(cells) ?? []), name]);
  }
  const rows = Array.from(same, ([cells, names]) => `- ${names.join(', ')}: ${cells}.`);
  return `${page.slice(0, from)}${BEGIN}\n\n${rows.join('\n')}\n\n${page.slice(to)}`;
}

/** Empty: as the caller sends it. */
function cellsOf(template: ChatTemplate): readonly string[] {
  const { roles, calls, turns } = template.forms;
  const { shows } = template.tools;
  const later = roles.laterAsText === true ? 'as text' : '';
  return [
    roles.onlyWithQuestion === true ? 'as text; the first too, behind a result' : later,
    roles.alternates === true ? 'as one' : '',
    roles.userFirst === true ? 'behind an empty message' : '',
    turns === 'none' ? 'before an empty message' : turns === 'begun' ? '' : 'closed by the sidecar',
    shows ? (calls.apart === true ? 'one a message' : '') : 'as text',
    shows && calls.wordsApart === true ? 'in a message before' : '',
    shows && calls.ids !== undefined ? (calls.ids === 'nine' ? 'nine characters' : "with the function's name") : '',
    keepsThoughts(template) ? '' : 'left out',
  ];
}

/** Whether a thought of an earlier turn is in the prompt. */
function keepsThoughts(template: ChatTemplate): boolean {
  const messages = [
    { role: 'user', content: 'Hello' },
    { role: 'assistant', content: 'Yes?', reasoning_content: 'earlier-thought' },
    { role: 'user', content: 'Goodbye' },
  ];
  const rendered = template.render({ messages }, { addGenerationPrompt: true });
  return rendered.kind === 'text' && rendered.text.includes('earlier-thought');
}
