"""x"""

EXAMPLES = ""


def configure(p): ...
def run(a, c):
    return 0
