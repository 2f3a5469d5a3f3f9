import { isLoopback } from './loopback.js';

/** Whether a text is a URL, and holds no credentials: fetch refuses those, and configurations are shown around. */
export function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username === '' && password === '';
}

/** Whether a secret that goes to this URL can be read on the way: plain HTTP, to another machine. */
export function isOpen(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'http:' && !isLoopback(withoutBrackets(hostname));
}

/** An address as a URL has it, and as a socket wants it. */
export function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '');
}
