/** Dependencies of long commands besides their output: a clock, and a terminal to show progress on. */
import type { Clock } from '../lib/clock.js';
import type { Output } from './command.js';
import type { Terminal } from './progress.js';

export interface Io extends Output {
  readonly clock: Clock;
  readonly terminal: Terminal;
}
