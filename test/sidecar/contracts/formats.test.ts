import t from 'tap';
import { isImageUrl, isUri } from '../../../sidecar/contracts/formats.js';

t.test('https URLs', async (t) => {
  for (const url of [
    ...['https://a', 'https://example.com', 'HTTPS://Example.com/a%20b?c=d#e', 'https://user:pw@host:443/'],
    ...['https://[2001:db8::1]/x', 'https://münchen.de/ö', `https://${'a'.repeat(512)}`],
    ...[`https://${'a'.repeat(512)}/${'b'.repeat(600)}`, 'https://a?b'],
  ])
    t.equal(isImageUrl(url), true, url);
  for (const url of [
    ...['', 'https:', 'https:/a', 'https://', 'https:///path', 'https://?q', 'https://a b/', 'https://a/b c'],
    ...['https://a/\n', ' https://a/', 'https://a:99999/', 'https://[::1/', 'https://a%zz/'],
    ...[`https://${'a'.repeat(513)}`, `https://${'a'.repeat(600)}/`, 'http://a/', 'ftp://a/', 'file:///etc/passwd'],
    ...['javascript:alert(1)', 'httpss://a/'],
  ])
    t.equal(isImageUrl(url), false, url);
});

t.test('data URLs', async (t) => {
  for (const url of [
    ...['data:,', 'data:,hello', 'DATA:text/plain,hello%20you', 'data:image/png;base64,iVBORw0KGgo='],
    ...['data:image/png;base64,iVBORw0KGg==', 'data:image/png;base64,iVBORw0KGg', 'data:image/png;base64,'],
    ...['data:;base64,AAAA', 'data:;BASE64,AAAA', 'data:image/svg+xml;charset=utf-8,%3Csvg%3E'],
    ...['data:text/plain;a=b;c=d;base64,AA%3D%3D', 'data:;base64,%41AA', "data:,a-_.!~*'();/?:@&=+$,b"],
  ])
    t.equal(isImageUrl(url), true, url);
  for (const url of [
    ...['data:', 'data:image/png;base64', 'data:image,x', 'data:image/png;base64;a=b,AAAA'],
    ...['data:image/png;charset,x', 'data:,a b', 'data:,a"b', 'data:,%zz', 'data:,%4', 'data:,é'],
    ...['data:;base64,AAAAA', 'data:;base64,AAA==', 'data:;base64,AA=A', 'data:;base64,====', 'data:;base64,A-_A'],
    ...['data:;base64,AA AA', `data:${'a'.repeat(1024)}/b,x`, 'data;,x'],
  ])
    t.equal(isImageUrl(url), false, url);
});

t.test('long URLs do not exhaust the stack', async (t) => {
  const long = 'A'.repeat(8_000_000);
  t.equal(isImageUrl(`https://a/${long}`), true);
  t.equal(isImageUrl(`https://${long}`), false);
  t.equal(isImageUrl(`data:;base64,${long}`), true);
  t.equal(isImageUrl(`data:;base64,${long}=A`), false);
  t.equal(isImageUrl(`data:,${'%41'.repeat(2_000_000)}`), true);
  t.equal(isImageUrl(`data:;${'a=b;'.repeat(2_000_000)}`), false);
});

t.test('URIs', async (t) => {
  for (const uri of ['https://json-schema.org/x#', 'urn:a:b']) t.equal(isUri(uri), true, uri);
  for (const uri of ['', '/x', 'a b:c', 'https://a/\t']) t.equal(isUri(uri), false, uri);
});
