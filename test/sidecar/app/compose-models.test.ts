import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { mappedBeside } from '../../../sidecar/app/compose-models.js';

t.test('the mapped bytes of other engines count once a file, without what each has repacked', async (t) => {
  const dir = t.testdir();
  const file = (name: string, bytes: number): string => {
    writeFileSync(join(dir, name), new Uint8Array(bytes));
    return join(dir, name);
  };
  const [own, q8, q4] = [file('own', 7), file('q8', 1000), file('q4', 500)];
  const ready = (
    of: string,
    repackedBytes?: number,
    gpu: string | false = false,
  ): Parameters<typeof mappedBeside>[1] => {
    const facts = { gpu, ...(repackedBytes !== undefined && { repackedBytes }) };
    return [{ file: of, engine: { state: 'ready', facts } }];
  };
  t.equal(mappedBeside(own, [...ready(own), ...ready(q8), ...ready(q8)]), 1000);
  t.equal(mappedBeside(own, [...ready(q8), ...ready(q4, 450)]), 1050);
  t.equal(mappedBeside(own, ready(q4, 600)), 0, 'never less than 0');
  t.equal(mappedBeside(own, ready(q8, 0, 'cuda')), 0);
  t.equal(mappedBeside(own, [{ file: q8, engine: { state: 'cold' } }]), 0);
  t.equal(mappedBeside(own, ready(join(dir, 'away'))), 0);
});
