/** A process that owns an engine, for a test that kills it: argv[2] is the stub’s script. Prints `ready` once it is. */
import { EngineHarness } from './engine-harness.js';
import type { StubScript } from './stub-script.js';

const harness = new EngineHarness(JSON.parse(process.argv[2] ?? '{}') as StubScript);
harness.engine.start();
await harness.ready();
process.send?.('ready');
