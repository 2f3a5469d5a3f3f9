import { availableParallelism } from 'node:os';
import t from 'tap';
import { computeThreads, coresProblem } from '../../../engine/llama/cores.js';
import { threadCores } from '../../support/processes.js';

t.test('compute threads', (t) => {
  t.equal(computeThreads({ threads: 0 }), Math.max(1, availableParallelism() - 1), 'all cores but one');
  t.equal(computeThreads({ threads: 3 }), 3);
  t.equal(computeThreads({ threads: 0, cores: '7' }), 1, 'one for each core');
  t.equal(computeThreads({ threads: 0, cores: '0-3,8,10-11' }), 7);
  t.equal(computeThreads({ threads: 2, cores: '0-3' }), 2);
  t.end();
});

t.test('cores that can be used, and that cannot', (t) => {
  const [may = ''] = threadCores(process.pid);
  const [first = ''] = may.split(/[-,]/);
  t.equal(coresProblem({ threads: 1 }), undefined);
  t.equal(coresProblem({ threads: 0, cores: may }), undefined);
  t.equal(coresProblem({ threads: 1, cores: first }), undefined);
  t.equal(coresProblem({ threads: 1, cores: `${first},4094-4095` }), `cores 4094,4095 cannot be used here, ${may} can`);
  t.equal(coresProblem({ threads: 1, cores: '3-1' }), 'cores 3-1 are none');
  t.equal(
    coresProblem({ threads: 2, cores: first }),
    `on cores ${first} 2 compute threads would wait for each other: threads 0 is one for each`,
  );
  t.end();
});
