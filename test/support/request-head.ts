import type { Exchange, RequestHead } from '../../sidecar/http/exchange.js';

/** The head of a POST whose path plays no part. `header`: a header by its lower-case name; none by default. */
export function postHead(header: RequestHead['header'] = () => undefined): RequestHead {
  return {
    method: 'POST',
    path: '/',
    query: '',
    requestId: 'r',
    scheme: 'http',
    address: '',
    route: undefined,
    header,
  };
}

/** Of an exchange whose route neither takes a file nor sends one. */
export const NO_FILES = {
  receive: () => {
    throw new Error('no file is taken');
  },
  file: () => {
    throw new Error('no file is sent');
  },
} as const satisfies Pick<Exchange, 'receive' | 'file'>;

/** An exchange with the parts that a test uses; any other one throws. */
export function exchangeWith(parts: Partial<Exchange>): Exchange {
  const unused = (): never => {
    throw new Error('not to be called here');
  };
  const answers = { body: unused, reply: unused, fail: unused, stream: unused, pieces: unused };
  return { head: postHead(), gone: new AbortController().signal, ...NO_FILES, ...answers, ...parts };
}
