/** How a model is prompted, where the operator says otherwise than its file. */
export interface TemplateSettings {
  /** Jinja source to use in place of the file's own chat template. */
  readonly chatTemplate?: string;
  /** How it calls tools: `auto`, `json`, `none`, or the name of a format. Absent: `auto`. */
  readonly toolFormat?: string;
}
