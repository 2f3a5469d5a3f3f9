/** Accepts all requests and answers 200, in a separate process: sends its port and the number of received bytes, and ends with its parent. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

let bytes = 0;
const server = createServer((request, response) => {
  request.on('data', (part: Buffer) => (bytes += part.length));
  request.on('end', () => response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end());
});
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
process.on('message', () => process.send?.(bytes));
process.once('disconnect', () => process.exit(0));
