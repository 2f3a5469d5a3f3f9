import OpenAI from 'openai-6';
import { zodResponseFormat } from 'openai-6/helpers/zod';
import { z } from 'zod';
import { openaiSteps } from './openai.mjs';

export default (given) => openaiSteps(OpenAI, { zodResponseFormat, z }, given);
