/** A file of its own: the console page's scripts are checked against it, and then against all that it imports. */
import type { QueueReport } from '../admission/report.js';

/** One model's queue as operators see it. Times in ms, rounded. */
export type AdmissionPage = Omit<QueueReport, 'waitingBy'>;
