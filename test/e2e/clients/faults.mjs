// What a client does when it is refused for now, when its conversation is too long, when a stream is kept alive before and behind its
// first tokens, and when the engine ends in the middle of a reply.
import assert from 'node:assert/strict';

/**
 * `whole(key, messageText)`: a reply, with the client's own retries. `long(key, upon)`: a stream of a long reply; at its third piece it
 * awaits `upon`, which gets a function that aborts the stream.
 */
export function faultSteps({ key, limited, control }, { whole, long }) {
  const test = async (what) => assert.equal((await fetch(`${control}/${what}`)).status, 200);
  return {
    async limited() {
      let second;
      const first = long(limited, async (abort) => {
        second = whole(limited);
        second.catch(() => {});
        await test('refused');
        abort();
      });
      await first.catch(() => {});
      await second;
    },
    async tooLong() {
      // OpenRouter's client has what it cannot parse in its error's body alone.
      const saysSo = (error) => /prompt is too long|maximum context length/.test(`${error} ${error.body ?? ''}`);
      await assert.rejects(whole(key, 'word '.repeat(20_000)), saysSo);
    },
    async kept() {
      let pauses = 0;
      await test('pause');
      const kept = long(key, async () => {
        await test('pause');
        pauses += 1;
      });
      // @openai/agents (in each API by another name) and Mastra take a reply that reached its longest length for a failed run.
      const isCut = /response\.incomplete|Invalid output type|STRUCTURED_OUTPUT_TRUNCATED/;
      await kept.catch((error) => assert.match(`${error}`, isCut));
      assert.equal(pauses, 1);
    },
    async lost() {
      let killed = false;
      await assert.rejects(
        long(key, async () => {
          await test('kill');
          killed = true;
        }),
      );
      assert.ok(killed);
      await whole(key);
    },
  };
}
