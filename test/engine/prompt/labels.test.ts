import t from 'tap';
import { readCalibration } from '../../../engine/prompt/labels.js';

t.test('a file without a temperature for a type leaves it unchanged', async (t) => {
  for (const found of [undefined, null, {}, 7]) {
    t.same(readCalibration(found), { kind: 'ok', calibration: { yes_no: 1, choice: 1, score: 1 } });
  }
  t.same(readCalibration({ choice: 2.5, other: 'x' }), {
    kind: 'ok',
    calibration: { yes_no: 1, choice: 2.5, score: 1 },
  });
});

t.test('an invalid temperature is reported, with its key', async (t) => {
  for (const score of [0, -1, NaN, Infinity, 100.5, '2', true]) {
    t.same(readCalibration({ yes_no: 2, score }), {
      kind: 'bad',
      problem: 'ra_sidecar.calibration.score in the file is no number above 0 and up to 100',
    });
  }
  t.match(readCalibration({ yes_no: 100 }), { kind: 'ok', calibration: { yes_no: 100 } });
});
