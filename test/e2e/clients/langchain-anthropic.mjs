import { ChatAnthropic } from '@langchain/anthropic';
import { langchainSteps } from './langchain.mjs';

/** Takes the options of the other chat model, by the names that this one has for them. */
class Chat extends ChatAnthropic {
  constructor({ configuration, modelKwargs, streamUsage: _, ...fields }) {
    const format = modelKwargs?.response_format.json_schema;
    super({
      ...fields,
      anthropicApiUrl: configuration.baseURL.replace(/\/v1$/, ''),
      ...(format && { outputConfig: { format: { type: 'json_schema', schema: format.schema } } }),
    });
  }

  bindTools(tools, { tool_choice: choice, ...more } = {}) {
    return super.bindTools(tools, { ...more, ...(choice && { tool_choice: choice === 'required' ? 'any' : choice }) });
  }
}

// By `jsonSchema` the client sends a schema without enums and bounds, which the reply then need not keep.
export default (given) => langchainSteps(Chat, given, ['functionCalling'], false);
