# `cavia serve` in a container:
#
#     docker build -t cavia .
#     (umask 077; openssl rand -hex 32 > token)
#     docker run --user "$(id -u)" -p 8000:8000 -v "$PWD:/data" cavia model.cavia --store contexts --token-file token
#
# g++ is for compiled graphs: without it, everything is computed as it is, and slower.
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/cavia
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir -c constraints.txt '.[serve,postgres]'

# Any user may run it; what the compiler writes is lost with the container.
ENV HOME=/tmp PYTHONUNBUFFERED=1
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --start-period=30s CMD \
    ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["cavia", "serve", "--host", "0.0.0.0", "--port", "8000"]
