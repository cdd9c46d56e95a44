"""Reports as text, drawings, traces and pages of HTML."""
