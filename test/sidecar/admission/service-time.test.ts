import t from 'tap';
import { ServiceTime } from '../../../sidecar/admission/service-time.js';

const HALF_MS = 15_000;

function mean({ parts }: ServiceTime): number {
  return parts.reduce((sum, { ms, weight }) => sum + ms * weight, 0);
}

t.test('before the first observation every time is 0', async (t) => {
  const service = new ServiceTime();
  service.fit(0, HALF_MS);
  t.equal(mean(service), 0);
});

t.test('parts: weights sum to 1, times rise, their mean is the observed one', async (t) => {
  const service = new ServiceTime();
  for (let i = 0; i < 5000; i += 1)
    service.observe(0, HALF_MS, { ms: -1000 * Math.log(1 - (i + 0.5) / 5000), answered: true });
  service.fit(0, HALF_MS);
  const { parts } = service;
  t.ok(Math.abs(parts.reduce((sum, { weight }) => sum + weight, 0) - 1) < 1e-9);
  t.ok(parts.every(({ ms }, at) => at === 0 || ms >= (parts[at - 1]?.ms ?? 0)));
  t.ok(Math.abs(mean(service) - 1000) < 60, `${mean(service)}`);
});

t.test('replies whose callers disconnected continue at the observed rate', async (t) => {
  const service = new ServiceTime();
  // Exponential, mean 1 s, observed up to 1 s.
  for (let i = 0; i < 5000; i += 1) {
    const ms = -1000 * Math.log(1 - (i + 0.5) / 5000);
    service.observe(0, HALF_MS, { ms: Math.min(ms, 1000), answered: ms < 1000 });
  }
  service.fit(0, HALF_MS);
  t.ok(Math.abs(mean(service) - 1000) < 120, `${mean(service)}`);
});
