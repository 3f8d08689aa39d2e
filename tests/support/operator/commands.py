"""Values of a spec from which code can come, or by which a report reaches elsewhere; and others."""

from __future__ import annotations

VARIABLES = (
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONWARNINGS", "PYTHONSTARTUP"),
    *("JAVA_TOOL_OPTIONS", "JAVA_OPTS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "PATH"),
    *("BASH_ENV", "ENV", "IFS", "BROWSER", "NODE_OPTIONS", "GCONV_PATH", "MALLOC_CHECK_"),
    *("SSL_CERT_FILE", "SSLKEYLOGFILE", "OPENSSL_CONF", "PERL5OPT", "SHELLOPTS"),
)
OPTIONS = (
    "-agentlib:jdwp=transport=dt_socket,server=y,address=*:5005",
    *("-agentpath:/x.so", "-javaagent:/x.jar", "-Xrunjdwp:x", "-Xdebug", "-Xbootclasspath/a:/x"),
    *("-XX:OnError=id", "-XX:OnOutOfMemoryError=id", "-XX:Flags=/x", "-XX:VMOptionsFile=/x"),
    *("@/x", "-cp", "-jar", "-Djava.security.manager=x", "-Djava.system.class.loader=x"),
    *("-Dcom.sun.management.jmxremote.port=1", "-Xlog:gc:file=/x", "-XX:+UseG1GC=$(id)"),
)
SAFE_OPTIONS = (
    "-Xms4g -Xmx4g -Xmn2g -Xss512k -server -XX:+UseG1GC -XX:MaxDirectMemorySize=8g"
    " -XX:G1HeapRegionSize=16m -XX:-UseBiasedLocking -XX:InitiatingHeapOccupancyPercent=30"
    " -Duser.timezone=Asia/Shanghai -Drocketmq.client.logRoot=/x -Djava.net.preferIPv4Stack=true"
)
S3A = ("endpoint", "access.key", "secret.key", "aws.credentials.provider", "s3.client.factory.impl")
