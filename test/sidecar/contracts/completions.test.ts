import t from 'tap';
import { modelNamedBy } from '../../../sidecar/contracts/completions.js';
import { bytesOf } from '../../support/bodies.js';

t.test('the model that a body names', (t) => {
  for (const [body, model] of [
    ['{"model":"m"}', 'm'],
    ['{"prompt":["x"],"model":"m","other":{}}', 'm'],
    ['{"model":7}', undefined],
    ['{}', undefined],
    ['null', undefined],
    ['"model"', undefined],
    ['[]', undefined],
    ['', undefined],
    ['{"model":"m"', undefined],
    ['{"model":"m","model":"m"}', undefined],
  ] as const) {
    t.equal(modelNamedBy(bytesOf(body)), model, body);
  }
  t.end();
});
