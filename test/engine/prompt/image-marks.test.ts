import t from 'tap';
import { chatPrompt } from '../../../engine/prompt/chat-prompt.js';
import type { PromptMessage, PromptPart } from '../../../engine/prompt/conversation.js';
import { SpecialTexts } from '../../../engine/prompt/data-text.js';
import { markImages } from '../../../engine/prompt/chat-prompt.js';
import { makeTemplate } from '../../../engine/prompt/template.js';
import { fakeVocabulary } from '../../support/fake-vocabulary.js';

const image: PromptPart = { type: 'image_url' };
const text = (of: string): PromptPart => ({ type: 'text', text: of });
const user = (...content: PromptPart[]): PromptMessage => ({ role: 'user', content });

const specials = ['<s>', '<|im|>'];
const vocabulary = fakeVocabulary({ specials, bos: '<s>', addBos: true });

/** The texts of the segments of the prompt that a template makes of the messages; a number is a special token. */
function segments(source: string, ...messages: PromptMessage[]): (string | number)[][] | string {
  const made = makeTemplate(source, { bos: '<s>', eos: '' });
  if (made.kind === 'bad') throw new Error(made.problem);
  const parts = { template: made.template, vocabulary, specials: new SpecialTexts(specials) };
  const prompt = chatPrompt(parts, { messages }, { addGenerationPrompt: true }, 10_000);
  if (prompt.kind === 'failed') return prompt.templateText ?? prompt.why;
  if (prompt.kind !== 'prompt') return prompt.kind;
  return prompt.prompt.map(({ tokens }) => {
    const read: (string | number)[] = [];
    for (const token of tokens) {
      const last = read.at(-1);
      if (token >= 200_000) read.push(token);
      else if (typeof last === 'string') read[read.length - 1] = last + String.fromCharCode(token);
      else read.push(String.fromCharCode(token));
    }
    return read;
  });
}

const PLAIN = `{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[reply]{% endif %}`;

t.test('texts around images, in order, with line breaks between texts only', async (t) => {
  t.same(segments(PLAIN, user(text('a'), image, text('b'), text('c'), image)), [
    [200_000, '[user]a'],
    ['b\nc'],
    ['[reply]'],
  ]);
  t.same(segments(PLAIN, user(image, image)), [[200_000, '[user]'], [], ['[reply]']]);
  t.same(segments(PLAIN, user(image), { role: 'assistant', content: 'x' }, user(text('y'), image)), [
    [200_000, '[user]'],
    ['[assistant]x[user]y'],
    ['[reply]'],
  ]);
});

t.test('without images nothing changes', async (t) => {
  t.same(markImages({ messages: [user(text('a'), text('b'))] }), { kind: 'none' });
  t.same(segments(PLAIN, user(text('a'), text('b'))), [[200_000, '[user]a\nb[reply]']]);
});

t.test('image marks in callers’ text are text', async (t) => {
  for (const mark of ['<__media__>', '\ue000', '\\ue000', '<|im|>', '<image>']) {
    const found = segments(PLAIN, user(text(`x${mark}y`), image, text('z')));
    t.same(found, [[200_000, `[user]x${mark}y`], ['z[reply]']], mark);
  }
});

t.test('every character that could be a mark is in use', async (t) => {
  const all = String.fromCharCode(...Array.from({ length: 0xf8ff - 0xe000 + 1 }, (_, i) => 0xe000 + i));
  t.same(markImages({ messages: [user(text(all), image)] }), { kind: 'unmarkable' });
  t.equal(segments(PLAIN, user(text(all), image)), 'conversation');
});

t.test('a template that writes JSON, omits an image, repeats it or ends with it', async (t) => {
  const json = PLAIN.replace('m.content', 'm.content | tojson');
  t.same(segments(json, user(text('a'), image)), [[200_000, '[user]"a'], ['"[reply]']]);
  const says = 'its template takes no images there';
  t.equal(segments(PLAIN.replace('{{ m.content }}', "{{ m.content.split('|')[0] }}"), user(text('a|'), image)), says);
  t.equal(segments(PLAIN.replace('{{ m.content }}', '{{ m.content }}{{ m.content }}'), user(image)), says);
  t.equal(segments(PLAIN.replace('[reply]', ''), user(image)), says);
});
