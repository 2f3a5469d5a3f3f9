/** `make docs`: writes what is generated from the code. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cliDocs } from '../../sidecar/commands/help.js';
import { configDocs } from '../../sidecar/config/docs.js';
import { apiDocs } from '../../sidecar/reference/api-docs.js';
import { dashboard } from '../../sidecar/reference/dashboard.js';
import { errorDocs } from '../../sidecar/reference/error-docs.js';
import { metricDocs } from '../../sidecar/reference/metric-docs.js';
import { sourceRoot } from './source-root.js';

mkdirSync(`${sourceRoot}/docs`, { recursive: true });
mkdirSync(`${sourceRoot}/deploy/grafana`, { recursive: true });
writeFileSync(`${sourceRoot}/docs/config.md`, configDocs());
writeFileSync(`${sourceRoot}/docs/errors.md`, errorDocs());
writeFileSync(`${sourceRoot}/docs/api.md`, apiDocs());
writeFileSync(`${sourceRoot}/docs/metrics.md`, metricDocs());
writeFileSync(`${sourceRoot}/deploy/grafana/ra-sidecar.json`, dashboard());
writeFileSync(`${sourceRoot}/docs/cli.md`, cliDocs());
