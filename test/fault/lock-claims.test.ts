/**
 * Several processes claim one spool at the same moment, beside the files of owners that were killed: exactly one gets
 * it. `make fault` passes a larger number of rounds.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { lockOwner } from '../../sidecar/usage/lock.js';
import { rounds } from '../support/long-form.js';

const ROUNDS = Number(process.argv[2] ?? rounds({ short: 15, long: 60 }));
const STARTERS = 4;

/** A lock and a claim of processes that have ended: no process has the id 0. */
const DEAD = '{"pid":0}';

class Claimant {
  readonly child: ChildProcess;
  readonly #answers: AsyncIterator<string>;

  constructor(dir: string) {
    const module = fileURLToPath(new URL('../support/lock-claimant.js', import.meta.url));
    this.child = fork(module, [dir], { stdio: ['pipe', 'pipe', 'inherit', 'ipc'] });
    if (!this.child.stdout) throw new Error('no stdout');
    this.#answers = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }

  async ask(line: 'claim' | 'release'): Promise<string> {
    this.child.stdin?.write(`${line}\n`);
    const answer = await this.#answers.next();
    return answer.done === true ? 'ended' : answer.value;
  }
}

function start(t: Test, dir: string): Claimant {
  const claimant = new Claimant(dir);
  t.teardown(() => claimant.child.kill('SIGKILL'));
  return claimant;
}

t.test('of processes that start together exactly one gets the lock, whatever ended processes left', async (t) => {
  const dir = t.testdir();
  const claimants = Array.from({ length: STARTERS }, () => start(t, dir));
  const winners = new Map<number, number>();
  for (let round = 0; round < ROUNDS; round += 1) {
    writeFileSync(join(dir, 'lock'), DEAD);
    writeFileSync(join(dir, 'lock.claim'), DEAD);
    const answers = await Promise.all(claimants.map((claimant) => claimant.ask('claim')));
    const won = answers.filter((answer) => answer === 'locked').length;
    winners.set(won, (winners.get(won) ?? 0) + 1);
    await Promise.all(claimants.map((claimant) => claimant.ask('release')));
  }
  t.strictSame([...winners], [[1, ROUNDS]], 'rounds by number of winners');
});

t.test('when an owner is killed exactly one of the waiting processes gets the lock', async (t) => {
  const dir = t.testdir();
  let claimants = Array.from({ length: STARTERS }, () => start(t, dir));
  for (let left = STARTERS; left > 0; left -= 1) {
    const answers = await Promise.all(claimants.map((claimant) => claimant.ask('claim')));
    t.strictSame([...answers].sort(), [...Array.from({ length: left - 1 }, () => 'held'), 'locked']);
    const winner = claimants[answers.indexOf('locked')];
    winner?.child.kill('SIGKILL');
    if (winner) await once(winner.child, 'close');
    claimants = claimants.filter((claimant) => claimant !== winner);
  }
  t.equal(await lockOwner(dir), undefined);
});
