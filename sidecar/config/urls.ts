import { isLoopback } from './loopback.js';

/** Whether a text is a URL without credentials: fetch refuses those, and configurations are shared. */
export function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username === '' && password === '';
}

/** Whether a secret sent to this URL would cross a network unencrypted: plain HTTP to another machine. */
export function isOpen(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'http:' && !isLoopback(withoutBrackets(hostname));
}

/** Removes the brackets of an IPv6 address in a URL, as a socket needs it. */
export function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '');
}
