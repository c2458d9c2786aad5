exec(open('/tmp/bench.py').read())
