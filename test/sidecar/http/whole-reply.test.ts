import t from 'tap';
import { Backlog } from '../../../sidecar/http/backlog.js';
import { WholeReply, type WholeResponse } from '../../../sidecar/http/whole-reply.js';

const BODY = Buffer.alloc(92_000, 'd');

/** A response whose socket accepts so many bytes of each call, and the calls. */
function responseTaking(most: number): {
  readonly res: WholeResponse;
  readonly given: Uint8Array[];
  readonly goOn: () => void;
} {
  const given: Uint8Array[] = [];
  let offset = 0;
  let writable: (offset: number) => boolean = () => true;
  const res = {
    writeHeader: () => res,
    cork: (run: () => void) => {
      run();
      return res;
    },
    getWriteOffset: () => offset,
    onWritable: (handler: (offset: number) => boolean) => {
      writable = handler;
      return res;
    },
    tryEnd: (bytes: Uint8Array, total: number): [boolean, boolean] => {
      given.push(bytes);
      const taken = Math.min(most, bytes.length);
      offset += taken;
      return [taken === bytes.length, offset === total];
    },
  };
  return { res: res as unknown as WholeResponse, given, goOn: () => writable(offset) };
}

for (const secure of [false, true])
  for (const open of [false, true])
    t.test(`bytes that many replies share are not copied: TLS ${secure}, stays open ${open}`, async (t) => {
      const { res, given, goOn } = responseTaking(10_000);
      const backlog = new Backlog({ streamBytes: 1, totalBytes: 1 });
      let ended = 0;
      const owner = { writeHead: () => undefined, ended: () => (ended += 1), cutOff: () => t.fail('it was cut off') };
      new WholeReply(res, owner, backlog, { body: BODY, length: BODY.length, secure, open }).send();
      t.equal(ended, 0, 'it waits');
      t.equal(backlog.bytes, 0, 'for bytes that it does not own');
      for (let turns = 0; ended === 0 && turns < BODY.length; turns++) goOn();
      t.equal(ended, 1);
      t.ok(given.every(({ buffer }) => buffer === BODY.buffer));
    });
