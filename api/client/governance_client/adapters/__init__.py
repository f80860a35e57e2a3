"""Agent SDKs, one file each: a file imports its SDK, and nothing else imports the file. `mcp_results.py`
needs none: the proxy tells of results as the adapter does.

All hold to the same: the SDK's own place for such things is used; a call is asked about directly before it
runs, with the arguments that it runs with; what runs where nobody can ask before it is refused by name,
unless it is listed as `ungoverned`; and an approval of the SDK's is a reason to ask the service again, never
an answer.
"""
