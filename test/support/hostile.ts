/** Bodies that cost more than their bytes suggest, of any length, for the test that counts and the bench that times. */
import type { TableRoute } from '../contract/tables/rule.js';

export interface Hostile {
  readonly name: string;
  readonly route: TableRoute;
  /** A body of about so many bytes. */
  readonly body: (bytes: number) => string;
}

/** `unit` repeated to fill so many bytes, between a beginning and an end. */
function filled(bytes: number, open: string, unit: (i: number) => string, close: string): string {
  let text = open;
  for (let i = 0; text.length + close.length < bytes; i++) text += unit(i);
  return text + close;
}

const USER = '{"role":"user","content":"x"}';
const TOOLS = `{"model":"m","messages":[${USER}],"tools":[{"type":"function","function":{"name":"f","parameters":`;
const END = '}}]}';

/** A chat body whose one tool has these parameters. */
function withParameters(bytes: number, open: string, unit: (i: number) => string, close: string): string {
  return filled(bytes, `${TOOLS}{"type":"object",${open}`, unit, `${close}}${END}`);
}

const comma = (i: number, text: string): string => (i === 0 ? text : `,${text}`);

/** As deep as a body may be under `properties`: 55 nested schemas. */
const DEEPEST = `${'{"items":'.repeat(55)}{}${'}'.repeat(55)}`;

export const HOSTILE: readonly Hostile[] = [
  {
    name: 'parameters: nested schemas, past the 64 levels',
    route: 'chat',
    body: (bytes) => withParameters(bytes, '"properties":{"a":', () => '{"items":', ''),
  },
  {
    name: 'parameters: many schemas, each as deep as may be',
    route: 'chat',
    body: (bytes) => withParameters(bytes, '"properties":{', (i) => comma(i, `"p${i}":${DEEPEST}`), '}'),
  },
  {
    name: 'parameters: many properties',
    route: 'chat',
    body: (bytes) => withParameters(bytes, '"properties":{', (i) => comma(i, `"p${i}":{}`), '}'),
  },
  {
    name: 'parameters: a schema of many branches',
    route: 'chat',
    body: (bytes) => withParameters(bytes, '"properties":{"a":{"anyOf":[', (i) => comma(i, '{"oneOf":[{}]}'), ']}}'),
  },
  {
    name: 'parameters: many required names, the last of them twice',
    route: 'chat',
    body: (bytes) => withParameters(bytes, '"properties":{},"required":["p0"', (i) => `,"p${i}"`, ']'),
  },
  {
    name: 'parameters: many patterns that would take for ever',
    route: 'chat',
    body: (bytes) =>
      withParameters(
        bytes,
        '"properties":{',
        (i) => comma(i, `"p${i}":{"pattern":"^(a+)+$","const":"${'a'.repeat(64)}!"}`),
        '}',
      ),
  },
  {
    name: 'messages of many parts, the last of them wrong',
    route: 'chat',
    body: (bytes) => {
      const parts = `[${Array<string>(64).fill('{"type":"text","text":"x"}').join(',')}]`;
      const unit = (i: number): string => comma(i, `{"role":"user","content":${parts}}`);
      return filled(bytes, '{"model":"m","messages":[', unit, ',{"role":"user","content":""}]}');
    },
  },
  {
    name: 'a text of escapes',
    route: 'chat',
    body: (bytes) => filled(bytes, '{"model":"m","messages":[{"role":"user","content":"', () => '\\u0041\\\\', '"}]}'),
  },
  {
    name: 'a text of quotes, half a surrogate pair at its end',
    route: 'chat',
    body: (bytes) => filled(bytes, '{"model":"m","messages":[{"role":"user","content":"', () => '\\"', '\\ud800"}]}'),
  },
  {
    name: 'names, the first of them twice',
    route: 'chat',
    body: (bytes) => filled(bytes, '{"k0":0', (i) => `,"k${i}":0`, '}'),
  },
  {
    name: 'one name over and over',
    route: 'chat',
    body: (bytes) => filled(bytes, '{"model":0', () => ',"model":0', '}'),
  },
  {
    name: 'brackets',
    route: 'chat',
    body: (bytes) => '['.repeat(bytes),
  },
  {
    name: 'a number of many digits',
    route: 'chat',
    body: (bytes) => filled(bytes, `{"model":"m","messages":[${USER}],"seed":1`, () => '0', '}'),
  },
  {
    name: 'an image whose data is percent-escaped',
    route: 'chat',
    body: (bytes) =>
      filled(
        bytes,
        '{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:;base64,',
        () => '%41',
        '="}}]}]}',
      ),
  },
  {
    name: 'an input of space',
    route: 'decisions',
    body: (bytes) => filled(bytes, '{"model":"m","questions":[],"input":"', () => ' ', '"}'),
  },
  {
    name: 'a state of numbers and space',
    route: 'systemone',
    body: (bytes) => {
      const row = `[${Array<string>(256).fill('1').join(' , ')}]`;
      const unit = (i: number): string => comma(i, row);
      return filled(bytes, '{"model":"m","questions":{"q":{"type":"noul","instructions":"x"}},"state":[', unit, ']}');
    },
  },
  {
    name: 'questions and labels',
    route: 'systemone',
    body: (bytes) => {
      const labels = Array.from({ length: 26 }, (_, i) => `"label ${i}":null`).join(',');
      const question = `{"type":"choice","instructions":"x","criteria":{${labels}}}`;
      const unit = (i: number): string => comma(i, `"q${i}":${question}`);
      return filled(bytes, '{"model":"m","state":"x","questions":{', unit, '}}');
    },
  },
];
