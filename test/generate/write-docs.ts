/** `make docs`: writes the pages that are generated from the code, and copies figures into pages. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { configDocs } from './config-docs.js';
import { withAlerts } from './alert-docs.js';
import { apiDocs } from './api-docs.js';
import { cliDocs } from './cli-docs.js';
import { withDifferences } from './difference-docs.js';
import { dashboard } from './dashboard.js';
import { withEfforts } from './effort-docs.js';
import { errorDocs } from './error-docs.js';
import { withHistories } from './history-docs.js';
import { metricDocs } from './metric-docs.js';
import { operatorsOpenApiText } from './operators-openapi.js';
import { resultsPage } from './results-page.js';
import { withFigures } from '../docs/figures.js';
import { readPages } from '../docs/pages.js';
import { readGoldens } from '../goldens/hashes.js';
import { bundleChatTemplates } from '../support/bundle-formats.js';
import { sourceRoot } from '../support/source-root.js';

mkdirSync(`${sourceRoot}/docs`, { recursive: true });
mkdirSync(`${sourceRoot}/deploy/grafana`, { recursive: true });
for (const [page, text] of Object.entries({ ...apiDocs(), ...configDocs(), ...metricDocs() }))
  writeFileSync(`${sourceRoot}/docs/${page}`, text);
writeFileSync(`${sourceRoot}/docs/errors.md`, errorDocs());
writeFileSync(`${sourceRoot}/docs/cli.md`, cliDocs());
writeFileSync(`${sourceRoot}/docs/operators-openapi.json`, operatorsOpenApiText());
writeFileSync(`${sourceRoot}/bench/results/README.md`, resultsPage());
writeFileSync(`${sourceRoot}/deploy/grafana/ra-sidecar.json`, dashboard());
const incidents = `${sourceRoot}/docs/incidents.md`;
writeFileSync(incidents, withAlerts(readFileSync(incidents, 'utf8')));
const { templates } = await readGoldens();
const goldens = `${sourceRoot}/test/goldens/README.md`;
const differing = withDifferences(readFileSync(goldens, 'utf8'), Object.keys(templates).length);
writeFileSync(goldens, await withEfforts(withHistories(differing, await bundleChatTemplates())));
for (const { path, text } of readPages()) {
  const figured = await withFigures(text, (results) => readFileSync(`${sourceRoot}/${results}`, 'utf8'));
  if (figured !== text) writeFileSync(`${sourceRoot}/${path}`, figured);
}
